import { OplogError } from "./errors.js";
import { agentAddress } from "./http.js";

const TOKEN = /^[!-~]+$/;

/** Return the address as `agentAddress` does, with the credentials of the options `password` and `token`. Throws TypeError. */
export function agentAccess(url, { password, token }, path) {
  const { url: target, authorization } = agentAddress(url, password, path);
  if (token !== undefined && authorization) throw new TypeError("token and password exclude each other: give one of them");
  return { url: target, credentials: new Credentials(token ?? authorization, token !== undefined) };
}

/**
 * The header Authorization of requests. `given`: the header, nothing, or if it `isToken` a token or a function that gives a fresh one.
 * Methods reject with the error of the function, and with OplogError if it gives no token.
 */
export class Credentials {
  #give = null;
  #last;
  #giving = null;

  constructor(given, isToken) {
    if (typeof given === "function") this.#give = given;
    else this.#last = isToken ? bearer(given, TypeError) : given;
    this.isToken = isToken;
  }

  get isGiven() {
    return this.isFunction || this.#last !== undefined;
  }

  /** Whether there may be another token after a refusal. */
  get isFunction() {
    return this.#give !== null;
  }

  /** The last header, unless there is none yet or it is the `refused` one. Requests at the same time share a fresh token. */
  async current(refused) {
    if (!this.isFunction || (this.#last !== undefined && this.#last !== refused)) return this.#last;
    this.#giving ??= this.fresh().finally(() => {
      this.#giving = null;
    });
    return this.#giving;
  }

  /** Call the function. */
  async fresh() {
    if (this.isFunction) this.#last = bearer(await this.#give(), OplogError);
    return this.#last;
  }
}

/** Return the sentence for a refusal. */
export function refusalOf(credentials, message, status) {
  return status === 401 && credentials.isToken ? `the token was refused: ${message}` : message;
}

/** Return why the function gave no token. */
export function noToken(error) {
  return `no token: ${error?.message ?? error}`;
}

function bearer(token, Failure) {
  const text = typeof token === "string" ? token.trim() : "";
  if (!TOKEN.test(text)) throw new Failure("token must be printable ASCII text without a space, or a function that gives it");
  return `Bearer ${text}`;
}
