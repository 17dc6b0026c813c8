// Substitutes for the canvas without WebGL2: photographs and curves still work.

export class BlindStage {
  request() {}

  moved() {}

  setDegree() {}

  setShown() {}

  model() {
    return null;
  }

  picture() {
    return Promise.reject(new Error('this browser cannot draw'));
  }
}

export class BlindPilot {
  isTurning = false;

  home() {}

  fit() {}

  turn() {}

  goTo() {}

  press() {
    return false;
  }

  release() {}

  releaseAll() {}
}
