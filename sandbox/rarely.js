// What few calls of a function need: the part of prelude.js for failures, logs, and strange values.
//
// It is compiled when it is first wanted, so the script may have rewritten the language by then. It takes everything
// from `language`, as it was before; and here too there are no loops over lists, no spreading, no taking apart of them.
(language, move) => {
  "use strict";
  const { AnyError, InternalError, RangeError, TypeError, Pledge, RealDate, BigInteger } = language;
  const { apply, is, isFinite, isInteger, parse, rawJSON, stringify, text } = language;
  const { captureStackTrace, toWellFormed } = language;

  class NotJson extends TypeError {}

  // An error of the script that is found by us: it points at the script's line that called `door`, never at ours.
  function blame(error, door) {
    try {
      if (error instanceof AnyError) captureStackTrace(error, door);
    } catch {
      // It is frozen, or resists in another way, and keeps what it has.
    }
    return error;
  }

  function refuse(declared, door) {
    const words = declared ? "stands twice; a file declares one workflow" : "takes an object";
    throw blame(new TypeError(`Keep.workflow ${words}`), door);
  }

  function miss(job, handler, door) {
    throw blame(new TypeError(`the workflow has no ${job} of ${handler}`), door);
  }

  // --- JSON, exactly -----------------------------------------------------------------------------------------

  // A value that JSON.stringify would change or drop: as it must be written, or an error that says why it can not.
  function exact(holder, key, value) {
    switch (typeof value) {
      case "number":
        if (!isFinite(value)) throw new NotJson(`"${key}" is ${value}, which JSON does not have`);
        if (is(value, -0)) return rawJSON("-0");
        if (!isInteger(value) || value >= 1e21 || value <= -1e21) return value;
        return rawJSON(text(BigInteger(value))); // JavaScript would write zeros for the last digits of such a number.
      case "bigint":
        return rawJSON(text(value));
      case "undefined":
        throw new NotJson(`element ${key} of a list is undefined; use null`);
      case "object":
        if (value === null) throw new NotJson(`"${key}" is a date without a time`);
        if (value instanceof Pledge) throw new NotJson(`"${key}" is a promise; await it first`);
        throw new NotJson(`"${key}" is neither a plain object nor a list; make one of it`);
      default:
        throw new NotJson(`"${key}" is a ${typeof value}, which JSON does not have`);
    }
  }

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

  const decode = (json) => parse(json, whole);

  // --- words -------------------------------------------------------------------------------------------------

  // Words for people; half a character is of no use to them.
  const quote = (words) => stringify(apply(toWellFormed, words, []));

  function shown(value) {
    try {
      if (value instanceof AnyError) return `${text(value.name)}: ${text(value.message)}`;
      return typeof value === "object" ? text(stringify(value)) : text(value);
    } catch {
      return "(something that can not be shown)";
    }
  }

  let logged = 0;

  function log(words, limit) {
    if (logged > limit) return;
    let line = "";
    for (let i = 0; i < words.length; i += 1) line += `${i ? " " : ""}${shown(words[i])}`;
    logged += line.length + 1;
    if (logged > limit) line = "(the log is full)";
    move(`{"log":${quote(line)}}`);
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

  // The shape of a declaration, with functions told by their type: a string begins with "=", all else is its type.
  function shape(value) {
    const tell = (key, inner) => {
      if (typeof inner === "string") return `=${inner}`;
      return typeof inner === "object" && inner !== null ? inner : text(inner === null ? null : typeof inner);
    };
    return stringify(value, tell);
  }

  return { __proto__: null, blame, decode, exact, log, miss, refuse, shape, told };
}
