"use strict";
(function () {
  const steps = JSON.parse(document.getElementById("what-if").textContent).steps;
  const input = document.getElementById("budget");
  const shown = document.getElementById("budget-shown");
  function number(value) { return value === null ? "none" : String(Number(value.toPrecision(4))); }
  function show() {
    const step = steps[Number(input.value)];
    shown.textContent = step.cost + (step.chosen ? ", as released" : "");
    input.setAttribute("aria-valuetext", shown.textContent);
    step.risks.forEach(function (value, i) {
      document.getElementById("risk-" + i).textContent = number(value);
    });
    step.errors.forEach(function (value, i) {
      document.getElementById("error-" + i).textContent = number(value);
    });
  }
  document.getElementById("slider").hidden = false;
  input.addEventListener("input", show);
  show();
})();
