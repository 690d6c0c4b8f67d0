// What pages do more with JavaScript. Without it everything works.
"use strict";
// What cannot be undone is asked about first. The question is the form's, or its button's.
document.addEventListener("submit", (event) => {
  const question = event.submitter?.dataset.confirm ?? event.target.dataset.confirm;
  if (question && !confirm(question)) event.preventDefault();
});
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
