/** The agent refuses for good, or the address is not an agent's, or the state cannot be used. `status` is HTTP's, if any. */
export class OplogError extends Error {
  constructor(message, status) {
    super(message);
    this.name = "OplogError";
    this.status = status;
  }
}

/** The connection ended or could not be made. Trying again makes sense, after `retryAfter` seconds or more. Stays inside the client. */
export class Disconnected extends Error {
  retryAfter = 0;
}
