// What pages do more with JavaScript. Without it everything works.
"use strict";
for (const form of document.querySelectorAll("form[data-confirm]")) {
  form.addEventListener("submit", (event) => { if (!confirm(form.dataset.confirm)) event.preventDefault(); });
}
// "/" leads to the search field, as on other such pages.
document.addEventListener("keydown", (event) => {
  const field = document.querySelector("[data-search]");
  if (event.key === "/" && field && !event.target.matches("input, select, textarea") && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    field.select();
  }
});
for (const select of document.querySelectorAll("form.bar select")) {
  select.addEventListener("change", () => select.form.requestSubmit());
}
