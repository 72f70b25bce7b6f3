"use strict";
// Controls: filter, pause, replicate, sign in and out, theme.

const FILTERS = ["types", "parents"];
const filter = byId("filter"), loginForm = byId("login-form");
const log = new Log();
const follower = new Follower(log, () => askForPassword("The session has expired."));
let figures = null;

async function session() {
  const response = await fetch("session", { cache: "no-store" });
  if (!response.ok) throw new Error(response.statusText);
  return response.json();
}

/** Return the filter, which is kept in the address of the page. */
function wantedFilter() {
  return new URLSearchParams([...new URLSearchParams(location.search)].filter(([name]) => FILTERS.includes(name)));
}

function showFilter() {
  const query = wantedFilter();
  for (const name of FILTERS) filter.elements[name].value = [...new Set(query.getAll(name))].join(",");
  byId("clear").hidden = query.size === 0;
}

function setFilter(query) {
  history.pushState(null, "", query.size ? `?${query}` : location.pathname);
  showFilter();
  follow();
}

/** Start at the newest id of the last /status: so the position is known even if the connection fails at once. */
function follow() {
  if (!byId("operations").hidden) follower.start(figures.status?.store.newest_id ?? "");
}

filter.addEventListener("submit", (event) => {
  event.preventDefault();
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(filter)) {
    const values = value.split(",").map((one) => one.trim()).filter(Boolean);
    if (values.length) query.set(name, values.join(","));
  }
  setFilter(query);
});
byId("clear").addEventListener("click", () => {
  setFilter(new URLSearchParams());
  filter.elements.types.focus();
});
byId("rows").addEventListener("click", ({ target }) => {
  const name = target.matches(".parent") ? "parents" : target.matches("td:nth-child(3)") ? "types" : null;
  if (!name) return;
  const query = wantedFilter(), value = target.textContent;
  query.set(name, value);
  if (value.includes(",")) query.append(name, value); // the commas of repeated parameters do not separate values
  setFilter(query);
});
addEventListener("popstate", () => {
  showFilter();
  follow();
});

byId("pause").addEventListener("click", () => log.togglePause());
byId("copy-all").addEventListener("click", () => follower.start("0"));

function askForPassword(reason = "") {
  link("off", "Signed out");
  setText(byId("login-error"), reason);
  showLogin(true);
  loginForm.elements.password.focus();
}

function showLogin(shown) {
  byId("login").hidden = !shown;
  byId("operations").hidden = shown;
}

loginForm.addEventListener("submit", async (event) => {
  event.preventDefault();
  const field = loginForm.elements.password;
  setText(byId("login-error"), "");
  try {
    const answer = await fetch("session", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ user: loginForm.elements.user.value, password: field.value }),
    });
    if (answer.ok) {
      await begin();
      byId("operations").focus();
      return;
    }
    const messages = { 401: "The password is wrong.", 429: "Too many wrong passwords. Try again in a minute." };
    setText(byId("login-error"), messages[answer.status] ?? (await answer.json()).detail);
  } catch {
    setText(byId("login-error"), "The agent does not answer.");
  }
  field.select();
});
byId("sign-out").addEventListener("click", async () => {
  await fetch("session", { method: "DELETE" });
  follower.stop();
  log.clear();
  await begin();
});

const dark = matchMedia("(prefers-color-scheme: dark)");
function showTheme() {
  const chosen = localStorage.getItem("oplog-theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
  const isDark = chosen ? chosen === "dark" : dark.matches;
  byId("theme").setAttribute("aria-label", `Use the ${isDark ? "light" : "dark"} theme`);
  return isDark;
}
byId("theme").addEventListener("click", () => {
  localStorage.setItem("oplog-theme", showTheme() ? "light" : "dark");
  showTheme();
});
dark.addEventListener("change", showTheme);

async function begin() {
  let now;
  try {
    now = await session();
  } catch {
    link("wait", "Connecting");
    setTimeout(begin, POLL_MS);
    return;
  }
  byId("sign-out").hidden = now.expires === null;
  figures ??= new Figures();
  figures.passwordNeeded = now.password_needed;
  await figures.poll();
  byId("user").hidden = !now.principals;
  if (now.signed_in) {
    loginForm.reset();
    showLogin(false);
    if (now.reads_operations) follow();
    else link("off", "No right to read operations");
  } else {
    askForPassword();
  }
}

showTheme();
showFilter();
begin();
