/** The agent refuses for good, or the address is not an agent's, or the state cannot be used. `status` is HTTP's, if any. */
export class OplogError extends Error {
  constructor(message, status) {
    super(message);
    this.name = "OplogError";
    this.status = status;
  }
}

/** There is no topic of this name, or it was deleted. */
export class TopicNotFoundError extends OplogError {
  constructor(message, status) {
    super(message, status);
    this.name = "TopicNotFoundError";
  }
}

/** The password or the token is missing, wrong, or not for this request. */
export class NotAllowedError extends OplogError {
  constructor(message, status) {
    super(message, status);
    this.name = "NotAllowedError";
  }
}

/** The agent was unreachable or busy for all of the time that a request may take. Messages may be stored nevertheless. */
export class UnavailableError extends OplogError {
  constructor(message, status) {
    super(message, status);
    this.name = "UnavailableError";
  }
}

/** Return the error for an agent's refusal of a request about a topic. */
export function topicRefusal(message, status) {
  if (status === 404) return new TopicNotFoundError(message, status);
  if (status === 401 || status === 403) return new NotAllowedError(message, status);
  return new OplogError(message, status);
}

/** The connection ended or could not be made. The client tries again after at least `retryAfter` seconds. It never leaves the client. */
export class Disconnected extends Error {
  retryAfter = 0;
}
