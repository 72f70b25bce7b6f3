"use strict";
// The stream. Operations are counted at once and drawn a few times per second, so a fast log does not freeze the page.

const MAX_ROWS = 200;
const DRAW_MS = 100;
const DRAW_SHARE = 8; // a drawing of one millisecond is followed by a pause of at least eight
const FLASH_AFTER_MS = 700; // rows flash only after a pause: in a steady flow a flash draws no attention
const RETRY_MS = [1000, 30000];
const KINDS = ["insert", "update", "delete"];

/** The newest rows. Between two drawings it keeps only as many operations as there are rows. */
class Log {
  #body = byId("rows");
  #waiting = [];
  #skipped = 0;
  #timer = null;
  #drawnAt = 0;
  #delay = DRAW_MS;
  #paused = false;

  add(kind, data) {
    this.#waiting.push([kind, data]);
    if (this.#waiting.length > 2 * MAX_ROWS) this.#skipped += this.#waiting.splice(0, MAX_ROWS).length;
    this.#drawSoon();
  }

  clear() {
    this.#waiting = [];
    this.#skipped = 0;
    this.#body.replaceChildren();
    byId("empty").hidden = false;
    if (this.#paused) this.#tellPaused();
  }

  togglePause() {
    this.#paused = !this.#paused;
    if (this.#paused) {
      this.#tellPaused();
    } else {
      setText(byId("pause"), "Pause");
      this.#drawSoon();
    }
  }

  #tellPaused() {
    const waiting = this.#waiting.length + this.#skipped;
    setText(byId("pause"), waiting ? `Resume (${count(waiting)} new)` : "Resume");
  }

  #drawSoon() {
    this.#timer ??= setTimeout(() => requestAnimationFrame(() => {
      this.#timer = null;
      if (this.#paused) this.#tellPaused();
      else this.#draw();
    }), this.#delay);
  }

  #draw() {
    const fresh = this.#waiting.slice(-MAX_ROWS), now = performance.now(), flash = now - this.#drawnAt > FLASH_AFTER_MS;
    this.#drawnAt = now;
    this.#waiting = [];
    this.#skipped = 0;
    for (const [kind, data] of fresh) {
      const full = this.#body.rows.length >= MAX_ROWS;
      const row = full ? this.#body.lastElementChild : document.createElement("tr");
      row.className = "";
      if (KINDS.includes(kind)) showOperation(row, kind, JSON.parse(data));
      else showMark(row, kind);
      if (flash) row.className = `${row.className} fresh`.trim();
      this.#body.prepend(row);
    }
    byId("empty").hidden = this.#body.rows.length > 0;
    this.#body.getBoundingClientRect(); // forces the layout now: it is most of the measured work
    this.#delay = Math.max(DRAW_MS, DRAW_SHARE * (performance.now() - now));
  }
}

function showOperation(row, kind, { timestamp, type, id, parents }) {
  if (row.cells.length !== 5) row.replaceChildren(...Array.from({ length: 5 }, () => document.createElement("td")));
  const [time, event, typeCell, object, parentsCell] = row.cells, date = new Date(timestamp), ms = document.createElement("span");
  ms.className = "ms";
  ms.textContent = `.${timestamp.slice(20, 23)}`;
  time.replaceChildren(clock(date), ms);
  time.title = timestamp;
  event.className = `kind ${kind}`;
  event.textContent = kind;
  typeCell.textContent = type;
  typeCell.title = `Only ${type}`;
  object.textContent = object.title = id;
  parentsCell.className = "wide";
  parentsCell.replaceChildren(...parents.map((name) => {
    const parent = document.createElement("span");
    parent.className = "parent";
    parent.textContent = name;
    parent.title = `Only ${name}`;
    return parent;
  }));
}

function showMark(row, text) {
  row.className = "mark-row";
  const cell = document.createElement("td"), last = document.createElement("td");
  cell.colSpan = 4;
  cell.textContent = text;
  last.className = "wide"; // like the column that narrow screens hide
  row.replaceChildren(cell, last);
}

/** Follows the stream. EventSource reconnects by itself after most errors, this class after the others. */
class Follower {
  #log;
  #source = null;
  #lastId = "";
  #timer = null;
  #delay = RETRY_MS[0];
  #copy = null;

  /** `onRefused` is called when the session has expired. */
  constructor(log, onRefused) {
    this.#log = log;
    this.onRefused = onRefused;
  }

  /** Start after an event id, by default with the next operation. "0" starts with a copy of all objects. */
  start(lastId = "") {
    this.stop();
    this.#log.clear();
    this.#lastId = lastId;
    this.#copy = lastId === "0" ? new Copy() : null;
    link("wait", "Connecting");
    this.#open();
  }

  stop() {
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
    byId("copy").hidden = true;
  }

  #open() {
    const query = wantedFilter();
    query.set("checkpoint", "1");
    if (this.#lastId) query.set("last_event_id", this.#lastId);
    const source = this.#source = new EventSource(`ops?${query}`);
    source.addEventListener("open", () => {
      this.#delay = RETRY_MS[0];
      if (this.#copy?.running) link("copy", "Replicating");
      else link("live", "Live");
    });
    source.addEventListener("error", () => this.#onError(source));
    for (const kind of KINDS) source.addEventListener(kind, (event) => this.#onOperation(kind, event));
    source.addEventListener("reset", (event) => {
      this.#lastId = event.lastEventId;
      this.#copy = new Copy();
      link("copy", "Replicating");
      this.#log.add("reset: a copy of all objects follows", "");
    });
    source.addEventListener("live", (event) => {
      this.#lastId = event.lastEventId;
      this.#copy?.complete();
      link("live", "Live");
      this.#log.add("live: the copy is complete", "");
    });
  }

  #onOperation(kind, event) {
    this.#lastId = event.lastEventId;
    this.#copy?.count();
    this.#log.add(kind, event.data);
  }

  async #onError(source) {
    if (source !== this.#source) return;
    link("wait", "Reconnecting");
    if (source.readyState !== EventSource.CLOSED) return;
    let signedIn = true;
    try {
      signedIn = (await session()).signed_in;
    } catch { /* the next attempt checks it again */ }
    if (source !== this.#source) return;
    if (!signedIn) {
      this.stop();
      this.onRefused();
      return;
    }
    this.#timer = setTimeout(() => this.#open(), this.#delay * (1 + Math.random() / 2));
    this.#delay = Math.min(2 * this.#delay, RETRY_MS[1]);
  }
}

/** Progress of a replication: reset, number of objects, live. */
class Copy {
  #began = performance.now();
  #objects = 0;
  #timer = null;
  running = true;

  constructor() {
    byId("copy").hidden = false;
    this.#show();
  }

  count() {
    if (!this.running) return;
    this.#objects += 1;
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      if (this.running) this.#show();
    }, DRAW_MS);
  }

  complete() {
    clearTimeout(this.#timer);
    this.running = false;
    this.#show();
  }

  #show() {
    const seconds = (performance.now() - this.#began) / 1000;
    const [reset, objects, live] = byId("copy").querySelectorAll("li");
    const bar = byId("copy-progress");
    reset.className = "done";
    objects.className = this.running ? "now" : "done";
    setText(objects, plural(this.#objects, "object"));
    live.className = this.running ? "" : "done";
    const known = figures?.status?.store.states;
    const percent = this.running ? Math.min(99, known ? Math.round((this.#objects / known) * 100) : 0) : 100;
    bar.setAttribute("aria-valuenow", String(percent));
    bar.style.width = `${percent}%`;
    const ofKnown = known ? ` of at most ${count(known)}` : "";
    setText(byId("copy-text"), this.running ? `${duration(seconds)}${ofKnown}` : `completed in ${duration(seconds)}`);
  }
}

function link(state, text) {
  const pill = byId("link");
  pill.dataset.state = state;
  setText(pill, text);
}
