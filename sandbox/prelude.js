// The inside of the sandbox: what a workflow file finds around it, and the script's half of the bridge.
//
// It runs before the script in every fresh context and gives the worker one function, which the script never sees.
// Whatever the script asks of the host waits here as a "move", in order, until the worker takes the moves. Texts and
// objects without a prototype hold everything, and each function of the language that is needed later is taken now:
// a script that rewrites the language rewrites only its own world. None of this is what protects the host, which
// trusts no move.
(() => {
  "use strict";
  const { create, freeze, getPrototypeOf, is, prototype: PlainObject } = Object;
  const { apply, construct } = Reflect;
  const { parse, rawJSON, stringify } = JSON;
  const { isArray } = Array;
  const { isFinite, isInteger, isSafeInteger } = Number;
  const { captureStackTrace } = Error;
  const { InternalError, RangeError, TypeError } = globalThis;
  const AnyError = Error;
  const BigInteger = BigInt;
  const Pledge = Promise;
  const RealDate = Date;
  const text = String;
  const { toWellFormed } = String.prototype;

  class NotJson extends TypeError {}

  // A stack trace would hand out the functions on the stack, and ours with them.
  AnyError.prepareStackTrace = (error, sites) => sites;
  delete getPrototypeOf(new AnyError().stack[0]).getFunction;
  AnyError.prepareStackTrace = undefined;

  // An error of the script that is found here: it points at the script's line that called `door`, never at ours.
  function blame(error, door) {
    try {
      if (error instanceof AnyError) captureStackTrace(error, door);
    } catch {
      // It is frozen, or resists in another way, and keeps what it has.
    }
    return error;
  }

  // --- JSON, exactly ---------------------------------------------------------------------------------------

  function exact(key, value) {
    switch (typeof value) {
      case "number":
        if (!isFinite(value)) throw new NotJson(`"${key}" is ${value}, which JSON does not have`);
        if (is(value, -0)) return rawJSON("-0");
        if (isSafeInteger(value) || !isInteger(value) || value >= 1e21 || value <= -1e21) return value;
        return rawJSON(text(BigInteger(value))); // JavaScript would write zeros for the last digits of such a number.
      case "bigint":
        return rawJSON(text(value));
      case "undefined":
        if (isArray(this)) throw new NotJson(`element ${key} of a list is undefined; use null`);
        return value; // A member without a value is left out, as everywhere in JavaScript.
      case "object": {
        if (value === null && this[key] instanceof RealDate) throw new NotJson(`"${key}" is a date without a time`);
        if (value === null || isArray(value)) return value;
        const parent = getPrototypeOf(value);
        if (parent === PlainObject || parent === null) return value;
        if (value instanceof Pledge) throw new NotJson(`"${key}" is a promise; await it first`);
        throw new NotJson(`"${key}" is neither a plain object nor a list; make one of it`);
      }
      case "string":
      case "boolean":
        return value;
      default:
        throw new NotJson(`"${key}" is a ${typeof value}, which JSON does not have`);
    }
  }

  // Words for people; half a character is of no use to them.
  const quote = (words) => stringify(apply(toWellFormed, words, []));

  const encode = (value) => stringify(value, exact);

  // A whole number that a number of JavaScript can not hold becomes a BigInt, and goes back as it came.
  function whole(key, value, { source }) {
    if (typeof value !== "number") return value;
    try {
      const number = BigInteger(source);
      return number === BigInteger(value) ? value : number;
    } catch {
      return value; // It has a fraction or an exponent.
    }
  }

  const decode = (json, big) => (json === "" ? undefined : big ? parse(json, whole) : parse(json));

  // --- moves -----------------------------------------------------------------------------------------------

  const waiting = create(null);
  let unanswered = 0;
  let moves = "";
  let calls = 0;
  let logged = 0;
  let logLimit = 0;
  // Where publishing is allowed it has no answer to wait for: the event is published with the end of the call, if at all.
  let publishes = false;

  function move(json) {
    moves += moves === "" ? json : `,${json}`;
  }

  // What is asked for is a move even when its values are not fit to be sent: it may be forbidden, and none is caught.
  function door(operation, tool) {
    return function call(...given) {
      let args = "";
      let broken = "";
      try {
        args = encodeAll(given);
      } catch (error) {
        broken = `,"broken":${told(blame(error, call), true)}`;
      }
      const id = (calls += 1);
      move(`{"call":${id},"operation":"${operation}","tool":${stringify(tool)},"args":[${args}]${broken}}`);
      return new Pledge((resolve) => {
        if (operation === "publish" && publishes) resolve();
        else {
          waiting[id] = resolve;
          unanswered += 1;
        }
      });
    };
  }

  function encodeAll(given) {
    let last = given.length;
    while (last > 0 && given[last - 1] === undefined) last -= 1;
    let args = "";
    for (let i = 0; i < last; i += 1) args += `${i ? "," : ""}${stringify(encode(given[i]) ?? "null")}`;
    return args;
  }

  function shown(value) {
    try {
      if (value instanceof AnyError) return `${text(value.name)}: ${text(value.message)}`;
      return typeof value === "object" ? text(stringify(value)) : text(value);
    } catch {
      return "(something that can not be shown)";
    }
  }

  function log(...values) {
    if (logged > logLimit) return;
    let line = "";
    for (let i = 0; i < values.length; i += 1) line += `${i ? " " : ""}${shown(values[i])}`;
    logged += line.length + 1;
    if (logged > logLimit) line = "(the log is full)";
    move(`{"log":${quote(line)}}`);
  }

  // --- what the script finds -------------------------------------------------------------------------------

  let declared;

  const Keep = freeze({
    workflow: function workflow(declaration) {
      const fit = typeof declaration === "object" && declaration !== null;
      if (!fit) throw blame(new TypeError("Keep.workflow takes an object"), workflow);
      if (declared) throw blame(new TypeError("Keep.workflow stands twice; a file declares one workflow"), workflow);
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
      move(`{"call":0,"operation":"${what}","tool":"","args":[]}`);
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

  // --- the call --------------------------------------------------------------------------------------------

  // The shape of a declaration, with functions told by their type: a string begins with "=", all else is its type.
  function shape(value) {
    const tell = (key, inner) => {
      if (typeof inner === "string") return `=${inner}`;
      return typeof inner === "object" && inner !== null ? inner : text(inner === null ? null : typeof inner);
    };
    return stringify(value, tell);
  }

  let job;
  let handler;
  let given; // What the function is called with: its context, then its values.
  let ending = "";
  let result;
  let failure;

  // Before the script exists, so that nothing here can be its doing.
  function setUp(asked, owner, connectors, limit, values) {
    job = asked;
    handler = owner;
    logLimit = limit;
    given = [context(parse(connectors)), ...values];
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
    if (typeof method !== "function") throw blame(new TypeError(`the workflow has no ${job} of ${handler}`), start);
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
      if (job === "describe") result = declared && shape(declared);
      else if (job !== "mutate") result = encode(returned);
      ending = "returned";
    } catch (error) {
      failure = error;
      ending = "unfit";
    }
  }

  function kindOf(error) {
    if (error instanceof NotJson) return "bad_result";
    const overflow = error instanceof RangeError && error.message === "Maximum call stack size exceeded";
    return error === null || overflow || error instanceof InternalError ? "limit" : "script";
  }

  // Why a call of the script, or the whole of it, failed. Only what it threw itself has a place that tells anything.
  function told(error, traced) {
    let kind = "script";
    let message = "the script threw something that can not be shown";
    let stack = "";
    try {
      kind = kindOf(error);
      if (error instanceof AnyError) {
        message = shown(error);
        if (traced) stack = text(error.stack);
      } else if (error === null) {
        message = "out of memory"; // The engine throws null when there is no memory left to make an error of.
      } else {
        message = `the script threw ${shown(error)}`;
      }
    } catch {
      // What was thrown resists; the message above says so.
    }
    return `{"failed":"${kind}","message":${quote(message)},"stack":${quote(stack)}}`;
  }

  function end() {
    if (ending === "") return "null";
    return ending === "returned" ? `{"returned":${stringify(result) ?? "null"}}` : told(failure, ending === "threw");
  }

  // From here on the script may have rewritten the language: no loops over lists, no spreading, no taking apart.
  return (verb, first, second, third, ...rest) => {
    if (verb === "set up") {
      const values = [];
      for (let i = 1; i < rest.length; i += 2) values.push(decode(rest[i], rest[i + 1]));
      return setUp(first, second, third, rest[0], values);
    }
    if (verb === "start") return void start(first);
    if (verb === "settle") {
      const resolve = waiting[first];
      delete waiting[first];
      unanswered -= 1;
      return void resolve(decode(second, third));
    }
    const ended = end();
    const over = ending !== "" && unanswered === 0; // Nothing can move any more, whatever the host does.
    const taken = `{"moves":[${moves}],"end":${ended},"over":${over}}`;
    moves = "";
    return text(taken); // A long text is a rope of pieces inside the engine, and its binding can not read those.
  };
})()
