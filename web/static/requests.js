// The keys of the page of requests. They act on the card that has the focus.
"use strict";

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select")) {
    return;
  }
  const cards = [...document.querySelectorAll("#requests .card")];
  const card = document.activeElement.closest(".card");
  const at = cards.indexOf(card);
  const act = {
    j: () => cards[at + 1]?.focus(),
    k: () => cards[at - 1]?.focus(),
    a: () => card?.querySelector(".decide [value=authorized]")?.click(),
    d: () => card?.querySelector(".decide [value=denied], .decide [value=rejected]")?.click(),
    e: () => openEditor(card),
    Enter: card === document.activeElement && (() => card?.querySelector(".of")?.click()), // elsewhere in a card it is the browser's
  }[event.key];
  if (act) {
    event.preventDefault();
    act();
  }
});

function openEditor(card) {
  const editor = card?.querySelector("details[id^=edit-]");
  if (editor) {
    editor.open = true;
    editor.querySelector("textarea").focus();
  }
}
