"use strict";
// Without this script the page shows the same. With it, tables sort, marks of
// charts say what they are at once, folds open together and before printing,
// and the command can be copied.

const button = (text, press) => {
  const b = document.createElement("button");
  b.type = "button";
  b.append(...[text].flat());
  b.addEventListener("click", press);
  return b;
};

// Tables sort by what data-sort holds: exact figures, not the text shown.
const sort = (table, column) => {
  const heads = [...table.tHead.rows[0].cells];
  const descending = heads[column].getAttribute("aria-sort") === "ascending";
  heads.forEach((h) => h.removeAttribute("aria-sort"));
  heads[column].setAttribute("aria-sort", descending ? "descending" : "ascending");
  const body = table.tBodies[0];
  const key = (row) => row.cells[column].dataset.sort ?? "";
  const order = (a, b) => {
    if (key(a) === "" || key(b) === "") return (key(a) === "") - (key(b) === ""); // absent last, both ways
    const x = Number(key(a)), y = Number(key(b));
    const sign = isNaN(x) || isNaN(y) ? key(a).localeCompare(key(b)) : x - y;
    return descending ? -sign : sign;
  };
  body.append(...[...body.rows].sort(order));
};

const heads = () => [...document.querySelectorAll("table.sortable")].flatMap((table) =>
  [...table.tHead.rows[0].cells].map((head, column) => ({ table, head, column })));
const arm = () => heads().forEach(({ table, head, column }) => {
  if (!head.querySelector("button")) head.append(button([...head.childNodes], () => sort(table, column)));
});
// A heading that is repeated on the next printed page loses its buttons.
const disarm = () => heads().forEach(({ head }) => {
  const b = head.querySelector("button");
  if (b) b.replaceWith(...b.childNodes);
});
arm();
document.addEventListener("renewed", arm); // by a page that grows

const folds = () => [...document.querySelectorAll("details")];
const contents = document.querySelector("nav ul");
if (contents && folds().length > 0) {
  const item = document.createElement("li");
  const all = button("Open all folds", () => {
    const open = all.textContent === "Open all folds";
    folds().forEach((d) => { d.open = open; });
    all.textContent = open ? "Close all folds" : "Open all folds";
  });
  item.append(all);
  contents.append(item);
}

let closed = [];
addEventListener("beforeprint", () => {
  closed = folds().filter((d) => !d.open);
  closed.forEach((d) => { d.open = true; });
  disarm();
});
addEventListener("afterprint", () => {
  closed.forEach((d) => { d.open = false; });
  arm();
});

// A link into a fold opens it.
const reveal = () => {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  for (let d = target && target.closest("details"); d; d = d.parentElement.closest("details")) d.open = true;
};
addEventListener("hashchange", reveal);
reveal();

// The browser shows a title only after a while, and never on a touch screen.
const tip = document.createElement("div");
tip.className = "tip";
tip.hidden = true;
tip.setAttribute("aria-hidden", "true");
document.body.append(tip);
document.addEventListener("pointerover", (event) => {
  const mark = event.target.closest("svg .point");
  tip.hidden = !mark;
  if (!mark) return;
  const title = mark.querySelector("title");
  if (title) {
    mark.dataset.tip = title.textContent;
    title.remove();
  }
  tip.textContent = mark.dataset.tip;
  const box = mark.querySelector(".hit").getBoundingClientRect();
  const left = Math.min(box.left, document.documentElement.clientWidth - tip.offsetWidth - 8);
  tip.style.left = Math.max(left, 8) + scrollX + "px";
  tip.style.top = box.bottom + 4 + scrollY + "px";
});

const command = document.querySelector(".command");
if (command && navigator.clipboard) {
  const copy = button("Copy", async () => {
    await navigator.clipboard.writeText(command.querySelector("code").textContent);
    copy.textContent = "Copied";
    setTimeout(() => { copy.textContent = "Copy"; }, 1500);
  });
  command.append(copy);
}
