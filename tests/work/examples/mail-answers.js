// The documents' fragments put together: a producer that polls, and a mutate whose mail is its last statement.
export default Keep.workflow({
  name: "mail-answers",

  topics: { "email.received": {} },

  producers: {
    async pollEmail(ctx, state) {
      const cursor = state?.cursor;
      const emails = await ctx.gmail.search({ query: "newer_than:24h", after: cursor });

      for (const e of emails) {
        await ctx.publish("email.received", {
          messageId: e.id,
          title: `Email from ${e.from}: "${e.subject}"`,
          payload: { subject: e.subject, from: e.from },
        });
      }

      return { cursor: emails.lastCursor };
    }
  },

  consumers: {
    answer: Keep.consumer({
      subscribe: ["email.received"],

      async prepare(ctx, state) {
        const pending = await ctx.peek("email.received");
        if (pending.length === 0) return { reservations: [], data: {} };
        const event = pending[0];
        return {
          reservations: [{ topic: "email.received", ids: [event.messageId] }],
          data: {
            recipient: event.payload.from,
            subject: `Re: ${event.payload.subject}`,
            body: "Thank you.",
            count: state?.counter ?? 0,
          }
        };
      },

      async mutate(ctx, prepared) {
        await ctx.gmail.send({
          to: prepared.data.recipient,
          subject: prepared.data.subject,
          body: prepared.data.body
        }); // TERMINAL — no code after this
      },

      async next(ctx, prepared, mutationResult) {
        return { counter: (prepared.data.count ?? 0) + 1 };  // optional state update
      },
    })
  }
});
