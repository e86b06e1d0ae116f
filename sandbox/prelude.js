// The inside of the sandbox: what a workflow file finds beside the language, and the script's half of the bridge.
//
// It runs before the script in every fresh context and gives the worker one function, which the script never sees.
// Whatever the script asks of the host waits here as a "move", in order, until the worker takes the moves. Texts and
// objects without a prototype hold everything, and each function of the language that is needed later is taken now:
// a script that rewrites the language rewrites only its own world. None of this is what protects the host, which
// trusts no move.
//
// Every call of a function pays for compiling this file. So what few calls need stands in rarely.js, and all of this is
// in a block: a function around it would take the engine a quarter longer.
"use strict";
{
  const { create, freeze, getPrototypeOf, is, prototype: PlainObject } = Object;
  const { apply, construct } = Reflect;
  const { parse, stringify } = JSON;
  const { isArray } = Array;
  const { isFinite, isInteger, isSafeInteger } = Number;
  const AnyError = Error;
  const Pledge = Promise;
  const RealDate = Date;
  const text = String;
  const compile = eval;

  // A stack trace would hand out the functions on the stack, and ours with them.
  AnyError.prepareStackTrace = (error, sites) => sites;
  delete getPrototypeOf(new AnyError().stack[0]).getFunction;
  AnyError.prepareStackTrace = undefined;

  // --- what few calls need -----------------------------------------------------------------------------------

  let rarelyText;
  let rare;

  // The language as it is before the script, for a file that is compiled when the script may have rewritten it.
  const language = {
    __proto__: null, AnyError, InternalError, RangeError, TypeError, Pledge, RealDate, apply, is, isFinite, isInteger,
    parse, stringify, text, BigInteger: BigInt, rawJSON: JSON.rawJSON,
    captureStackTrace: AnyError.captureStackTrace, toWellFormed: text.prototype.toWellFormed,
  };

  function rarely() {
    rare ??= compile(rarelyText)(language, move);
    return rare;
  }

  // --- JSON, exactly -----------------------------------------------------------------------------------------

  // Nearly all values are exact as they are.
  function exact(key, value) {
    switch (typeof value) {
      case "string":
      case "boolean":
        return value;
      case "number":
        if (isSafeInteger(value) ? !is(value, -0) : isFinite(value) && !isInteger(value)) return value;
        break;
      case "undefined":
        if (!isArray(this)) return value; // A member without a value is left out, as everywhere in JavaScript.
        break;
      case "object": {
        if (value === null ? !(this[key] instanceof RealDate) : isArray(value)) return value;
        const parent = value && getPrototypeOf(value);
        if (value && (parent === PlainObject || parent === null)) return value;
      }
    }
    return rarely().exact(this, key, value);
  }

  const encode = (value) => stringify(value, exact);

  const decode = (json, big) => (json === "" ? undefined : big ? rarely().decode(json) : parse(json));

  // --- moves -------------------------------------------------------------------------------------------------

  const waiting = create(null);
  let unanswered = 0;
  let moves = "";
  let calls = 0;
  let noted = 0; // Calls that became moves.
  // Where publishing is allowed it has no answer to wait for: the event is published with the end of the call, if at all.
  let publishes = false;

  function move(json) {
    moves += moves === "" ? json : `,${json}`;
  }

  // What is asked for is a move even when its values are not fit to be sent: it may be forbidden, and none is caught.
  // It is counted before anything can fail, memory for its values included. No operation takes more than two.
  function door(operation, tool) {
    return function call(first, second) {
      const id = (calls += 1);
      let args = "";
      let broken = "";
      try {
        if (second !== undefined) args = `${written(first)},${written(second)}`;
        else if (first !== undefined) args = written(first);
      } catch (error) {
        broken = `,"broken":${rarely().told(rarely().blame(error, call), true)}`;
      }
      move(`{"call":${id},"operation":"${operation}","tool":${stringify(tool)},"args":[${args}]${broken}}`);
      noted += 1;
      return new Pledge((resolve) => {
        if (operation === "publish" && publishes) return resolve();
        waiting[id] = resolve;
        unanswered += 1;
      });
    };
  }

  const written = (value) => stringify(encode(value) ?? "null");

  // --- what the script finds ---------------------------------------------------------------------------------

  let declared;

  const Keep = freeze({
    workflow: function workflow(declaration) {
      if (declared || typeof declaration !== "object" || declaration === null) rarely().refuse(declared, workflow);
      declared = declaration;
      return declaration;
    },
    consumer: (declaration) => declaration,
  });

  function context(connectors) {
    const ctx = create(null);
    ctx.peek = door("peek", "");
    ctx.getByIds = door("get", "");
    ctx.publish = door("publish", "");
    for (const [connector, methods] of connectors) {
      ctx[connector] = create(null);
      for (const method of methods) ctx[connector][method] = door("tool", `${connector}.${method}`);
      freeze(ctx[connector]);
    }
    return freeze(ctx);
  }

  // Mutate decides from what was prepared (SCRIPT-004): time and chance end the run.
  function forgetTimeAndChance() {
    const refuse = (what) => () => {
      calls += 1;
      move(`{"call":0,"operation":"${what}","tool":"","args":[]}`);
      noted += 1;
      return NaN;
    };
    const time = refuse("time");
    RealDate.now = time;
    globalThis.Date = new Proxy(RealDate, {
      construct: (target, given, maker) => construct(target, given.length ? given : [time()], maker),
      apply: () => text(time()),
    });
    RealDate.prototype.constructor = globalThis.Date;
    Math.random = refuse("chance");
    for (const name of ["performance", "WeakRef", "FinalizationRegistry", "Atomics", "SharedArrayBuffer"]) {
      delete globalThis[name];
    }
  }

  // --- the call ----------------------------------------------------------------------------------------------

  let job;
  let handler;
  let given; // What the function is called with: its context, then its values.
  let ending = "";
  let result;
  let failure;

  // Before the script exists, so that nothing here can be its doing.
  function setUp(asked, owner, connectors, logLimit, values) {
    job = asked;
    handler = owner;
    given = [context(parse(connectors)), ...values];
    const log = (...words) => rarely().log(words, logLimit);
    const console = freeze({ log, info: log, warn: log, error: log, debug: log });
    Object.defineProperty(globalThis, "Keep", { value: Keep });
    Object.defineProperty(globalThis, "console", { value: console });
    if (job === "mutate") forgetTimeAndChance();
    publishes = job === "next" || job === "producer";
  }

  function invoke() {
    const owner = declared?.[job === "producer" ? "producers" : "consumers"]?.[handler];
    const method = job !== "producer" ? owner?.[job] : typeof owner === "function" ? owner : owner?.handler;
    if (job === "next" && method === undefined) return undefined;
    if (typeof method !== "function") rarely().miss(job, handler, start);
    return apply(method, owner, given);
  }

  async function start(loaded) {
    let returned;
    try {
      await loaded;
      if (job !== "describe") returned = await invoke();
    } catch (error) {
      failure = error; // Nothing is allocated here: there may be no memory left.
      ending = "threw";
      return;
    }
    try {
      if (job === "describe") result = declared && rarely().shape(declared);
      else if (job !== "mutate") result = encode(returned);
      ending = "returned";
    } catch (error) {
      failure = error;
      ending = "unfit";
    }
  }

  const UNNOTED = `{"failed":"limit","message":"InternalError: no memory or stack was left for a call","stack":""}`;

  function end() {
    if (calls !== noted) return UNNOTED; // The script may have caught what came of that.
    if (ending === "") return "null";
    if (ending === "returned") return `{"returned":${stringify(result) ?? "null"}}`;
    return rarely().told(failure, ending === "threw");
  }

  function take() {
    const ended = end();
    const over = ending !== "" && unanswered === 0; // Nothing can move any more, whatever the host does.
    const taken = `{"moves":[${moves}],"end":${ended},"over":${over}}`;
    moves = "";
    return taken;
  }

  function settle(call, json, big) {
    const resolve = waiting[call];
    delete waiting[call];
    unanswered -= 1;
    resolve(decode(json, big));
  }

  // From here on the script may have rewritten the language: no loops over lists, no spreading, no taking apart.
  function bridge(verb, first, second, third, ...rest) {
    switch (verb) {
      case "set up": {
        rarelyText = rest[1];
        const values = [];
        for (let i = 2; i < rest.length; i += 2) values.push(decode(rest[i], rest[i + 1]));
        return setUp(first, second, third, rest[0], values);
      }
      case "start":
        return void start(first);
      case "settle":
        return settle(first, second, third);
      default:
        return text(take()); // A rope of pieces inside the engine: its binding can not read those.
    }
  }

  bridge;
}
