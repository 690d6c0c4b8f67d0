"use strict";
// Without this script the page shows the same: it sorts tables, copies the
// command and opens what is folded before printing.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const descending = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((h) => h.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const body = table.tBodies[0];
      const key = (row) => row.cells[column].dataset.sort;
      const order = (a, b) => {
        if (key(a) === "" || key(b) === "") return (key(a) === "") - (key(b) === ""); // absent last, both ways
        const x = Number(key(a)), y = Number(key(b));
        const sign = isNaN(x) || isNaN(y) ? key(a).localeCompare(key(b)) : x - y;
        return descending ? -sign : sign;
      };
      body.append(...[...body.rows].sort(order));
    });
  });
}
const command = document.querySelector("pre.command");
if (command && navigator.clipboard) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(command.querySelector("code").textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  command.append(button);
}
addEventListener("beforeprint", () => {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
});
