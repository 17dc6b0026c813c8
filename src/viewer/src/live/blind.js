// What stands for the canvas where nothing can be drawn: photographs and curves stay.

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
