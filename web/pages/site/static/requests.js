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
    a: () => decide(card, "[value=authorized]"),
    d: () => decide(card, "[value=denied], [value=rejected]"),
    e: () => openEditor(card),
    Enter: card === document.activeElement && (() => card?.querySelector(".of")?.click()), // elsewhere in a card it is the browser's
  }[event.key];
  if (act) {
    event.preventDefault();
    act();
  }
});

// decide presses a button that the card shows: a form that is open alone hides those of the card.
function decide(card, button) {
  card?.querySelector(`.card:not(:has(.alone[open])) .decide :is(${button})`)?.click();
}

function openEditor(card) {
  const editor = card?.querySelector("details[id^=edit-]");
  if (editor) {
    editor.open = true;
    editor.querySelector("textarea").focus();
  }
}
