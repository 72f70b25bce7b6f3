/** The agent refuses for good, or the address is not an agent's, or the state cannot be used. `status` is HTTP's, if any. */
export class OplogError extends Error {
  constructor(message, status) {
    super(message);
    this.name = "OplogError";
    this.status = status;
  }
}

/** The connection ended or could not be made. The client tries again after at least `retryAfter` seconds. It never leaves the client. */
export class Disconnected extends Error {
  retryAfter = 0;
}
