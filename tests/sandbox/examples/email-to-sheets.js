export default Keep.workflow({
  name: "email-to-sheets",

  topics: {
    "email.received": {},
    "row.created": {},
  },

  producers: {
    pollEmail: {
      schedule: { interval: "5m" },
      handler: async (ctx, state) => {
        const emails = await ctx.gmail.search({ after: state?.cursor });
        for (const e of emails) {
          await ctx.publish("email.received", {
            messageId: e.id,
            title: `Email from ${e.from}: "${e.subject}"`,
            payload: { subject: e.subject, from: e.from },
          });
        }
        return { cursor: emails.lastCursor };
      }
    }
  },

  consumers: {
    processEmail: Keep.consumer({
      subscribe: ["email.received"],

      async prepare(ctx, state) {
        const pending = await ctx.peek("email.received");
        if (pending.length === 0) return { reservations: [], data: {} };
        const event = pending[0];
        return {
          reservations: [{ topic: "email.received", ids: [event.messageId] }],
          data: { messageId: event.messageId, from: event.payload.from, subject: event.payload.subject }
        };
      },

      async mutate(ctx, prepared) {
        await ctx.sheets.appendRow({
          spreadsheetId: "...",
          values: [prepared.data.from, prepared.data.subject]
        });
      },

      async next(ctx, prepared, mutationResult) {
        if (mutationResult.status === 'applied') {
          await ctx.publish("row.created", {
            messageId: `row:${prepared.data.messageId}`,
            title: `Row created for ${prepared.data.from}`,
            payload: { rowId: mutationResult.result.rowId }
          });
        }
      },
    })
  }
});
