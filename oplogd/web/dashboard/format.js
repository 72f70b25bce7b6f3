"use strict";
// Formats for numbers, sizes and times.

const byId = (id) => document.getElementById(id);
const numbers = new Intl.NumberFormat("en");
const rough = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

const count = (value) => numbers.format(value);
const plural = (value, word) => `${count(value)} ${word}${value === 1 ? "" : "s"}`;

function rate(value) {
  return value < 100 ? rough.format(value) : count(Math.round(value));
}

function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; value >= 1024 && unit < units.length - 1; unit++) value /= 1024;
  return `${value < 1000 ? rough.format(value) : count(Math.round(value))} ${units[unit]}`;
}

function duration(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 100) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 100) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Return the time of day in the time zone of the browser. */
function clock(date) {
  return date.toTimeString().slice(0, 8);
}

/** Write only changed text: every write costs a layout, and a screen reader may announce it. */
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
