"use strict";
// This script keeps an open page up to date. The server sends an event when something has changed; the script then
// replaces the sections of the page that differ. Open folds stay open, and scroll position and focus stay where they
// are. Without the script, pages show the state at the time they were loaded.

const latest = document.querySelector("#latest[data-run]");
const all = document.querySelector("#all[data-key]");
const shownKey = () => document.querySelector("#latest[data-key], #all[data-key]").dataset.key;

const state = document.createElement("p");
state.className = "connection";
state.setAttribute("role", "status");
const say = (text) => {
  state.textContent = text;
  document.body.classList.toggle("stale", text !== "");
};

// Open or close the n-th fold of the new section like the n-th fold of the old one, and keep the scroll positions.
const keep = (from, to) => {
  const open = [...from.querySelectorAll("details")].map((d) => d.open);
  to.querySelectorAll("details").forEach((d, i) => { d.open = open[i] ?? d.open; });
  const scrolled = [...from.querySelectorAll(".scroll")].map((s) => [s.scrollLeft, s.scrollTop]);
  return () => to.querySelectorAll(".scroll").forEach((s, i) => { if (scrolled[i]) [s.scrollLeft, s.scrollTop] = scrolled[i]; });
};

// The index of the focused element among the section's focusable elements; -1: the focus is elsewhere.
const focusable = "a, button, input, select, summary, [tabindex]";
const focused = (section) => [...section.querySelectorAll(focusable)].indexOf(document.activeElement);

// The HTML of the sections as the server sent it, by name. The page itself differs, because readers sort and unfold.
const made = new Map();

const put = (old, fresh) => {
  const text = fresh.outerHTML, same = made.get(nameOf(fresh)) === text;
  made.set(nameOf(fresh), text);
  if (same) return;
  const at = focused(old), scroll = keep(old, fresh);
  old.replaceWith(fresh);
  scroll();
  if (at >= 0) fresh.querySelectorAll(focusable)[at]?.focus({ preventScroll: true });
};

// Save and restore what the reader has entered.
const filled = () => [...document.querySelectorAll("main input, main select")].map((i) => [i.name, i.value, i.checked]);
const refill = (before) => {
  const checked = new Set(before.filter((b) => b[2]).map((b) => b[0] + " " + b[1]));
  document.querySelectorAll("main input[type=checkbox]").forEach((i) => { i.checked = checked.has(i.name + " " + i.value); });
  document.querySelectorAll(".filter input, .filter select").forEach((i) => {
    const b = before.find((b) => b[0] === i.name);
    if (b) i.value = b[1];
  });
};

const sections = (page) => [...page.querySelectorAll("main > section")];
const nameOf = (s) => s.id || s.getAttribute("aria-labelledby");

sections(document).forEach((s) => made.set(nameOf(s), s.outerHTML));

const renew = async () => {
  const answer = await fetch(location.href, { headers: { accept: "text/html" } });
  if (!answer.ok && answer.status !== 422) throw new Error("status " + answer.status);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const before = filled(), fresh = new Map(sections(page).map((s) => [nameOf(s), s]));
  const main = document.querySelector("main");
  sections(document).filter((s) => !fresh.has(nameOf(s))).forEach((s) => s.remove());
  let last = null;
  for (const [name, section] of fresh) {
    const old = sections(document).find((s) => nameOf(s) === name);
    if (old) put(old, section);
    else {
      made.set(name, section.outerHTML);
      if (last) last.after(section);
      else main.prepend(section);
    }
    last = sections(document).find((s) => nameOf(s) === name);
  }
  const subtitle = page.querySelector(".subtitle"), shown = document.querySelector(".subtitle");
  if (subtitle && shown) shown.textContent = subtitle.textContent;
  const contents = document.querySelector("nav ul"), entries = page.querySelector("nav ul");
  const names = (list) => [...list.querySelectorAll("a")].map((a) => a.hash + a.textContent).join("\n");
  if (contents && entries && names(contents) !== names(entries)) {
    const at = contents.contains(document.activeElement) ? document.activeElement.hash : "";
    contents.querySelectorAll("li:has(a)").forEach((li) => li.remove());
    contents.prepend(...entries.children);
    if (at) [...contents.querySelectorAll("a")].find((a) => a.hash === at)?.focus({ preventScroll: true });
  }
  refill(before);
  count();
  document.dispatchEvent(new Event("renewed"));
};

// One renewal runs at a time. A change during a renewal starts another one after it. A failed renewal is repeated.
let renewing = false, again = false, failed = false, gone = false;
const renewed = async () => {
  if (renewing) { again = true; return; }
  renewing = true;
  try {
    do { again = false; await renew(); } while (again);
    if (failed && !gone) say("");
    failed = false;
  } catch {
    failed = true;
    if (!gone) {
      say("What changed could not be fetched; it is tried again.");
      setTimeout(() => { if (!gone) renewed(); }, 2000);
    }
  }
  renewing = false;
};

const follow = () => {
  const run = latest ? "run=" + encodeURIComponent(latest.dataset.run) + "&" : "";
  const events = new EventSource("/events?" + run + "key=" + encodeURIComponent(shownKey()));
  events.addEventListener("open", () => say(""));
  events.addEventListener("changed", renewed);
  events.addEventListener("status", (event) => {
    const page = new DOMParser().parseFromString(event.data, "text/html");
    const old = document.getElementById("progress"), fresh = page.getElementById("progress");
    if (old && fresh) put(old, fresh);
    else if (old) renewed(); // the run has ended
  });
  events.addEventListener("gone", () => {
    events.close();
    gone = true;
    say("This run was deleted; the page shows what it was.");
  });
  events.addEventListener("error", () => say("The server does not answer; what is shown may be old."));
  addEventListener("pagehide", () => events.close());
};

// Show the number of runs that are chosen for a comparison.
const count = () => {
  const text = document.getElementById("chosen");
  if (!text) return;
  const n = document.querySelectorAll(".chosen input:checked").length;
  text.textContent = n === 0 ? "" : n === 2 ? "Two are chosen." : n + " chosen; a comparison is of two.";
};
document.addEventListener("change", (event) => {
  if (event.target.matches(".chosen input")) count();
  else if (event.target.matches(".filter select")) event.target.form.requestSubmit();
});

if (latest || all) {
  document.querySelector("header").append(state);
  follow();
  addEventListener("pageshow", (event) => { if (event.persisted) follow(); });
}
count();
