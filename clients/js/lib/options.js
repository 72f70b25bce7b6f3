export const READ_COMMITTED = "read_committed";
const ISOLATIONS = [READ_COMMITTED, "read_uncommitted"];

const RULES = {
  seconds: [(value) => typeof value === "number" && value > 0, "a number of seconds above 0"],
  count: [(value) => Number.isSafeInteger(value) && value > 0, "a whole number above 0"],
  backoff: [isBackoff, "two numbers of seconds, the first above 0 and not above the second"],
  isolation: [(value) => ISOLATIONS.includes(value), ISOLATIONS.join(" or ")],
  name: [isName, "1 to 100 ASCII letters, digits, '.', '_' or '-'"],
  shard: [isShard, "I/N, such as 3/8, with 0 <= I < N <= 256"],
  function: [(value) => typeof value === "function", "a function"],
};

/** Return `defaults` overridden by `options`. An option that is undefined or null counts as not given. */
export function withDefaults(defaults, options) {
  const given = Object.entries(options ?? {}).filter(([, value]) => value !== undefined && value !== null);
  return { ...defaults, ...Object.fromEntries(given) };
}

/** Throws TypeError for the first option that breaks its rule. `rules`: option -> name of its rule. */
export function checkOptions(options, rules) {
  for (const [name, rule] of Object.entries(rules)) {
    const [isGood, wanted] = RULES[rule];
    if (!isGood(options[name])) throw new TypeError(`${name} must be ${wanted}`);
  }
}

function isName(value) {
  return typeof value === "string" && /^[A-Za-z0-9._-]{1,100}$/.test(value);
}

function isShard(value) {
  if (typeof value !== "string" || !/^(?:0|[1-9][0-9]{0,2})\/[1-9][0-9]{0,2}$/.test(value)) return false;
  const [shard, count] = value.split("/").map(Number);
  return shard < count && count <= 256;
}

function isBackoff(value) {
  const [first, last] = Array.isArray(value) ? value : [];
  return first > 0 && first <= last && value.every((seconds) => typeof seconds === "number");
}
