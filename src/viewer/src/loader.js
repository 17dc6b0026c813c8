// Unpacks and runs the program in the page. The page's policy names the hash of this file.
(async () => {
  const say = text => {
    document.body.dataset.state = 'error';
    document.getElementById('message').textContent = text;
  };
  if (!('DecompressionStream' in window)) {
    say('This browser is too old to show the scene: take one of 2023 or later.');
    return;
  }
  try {
    const packed = Uint8Array.from(atob(document.getElementById('bundle').textContent), c => c.charCodeAt(0));
    const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
    const script = document.createElement('script');
    script.textContent = await new Response(unpacked).text();
    document.body.append(script);
  } catch (error) {
    say(`This page is damaged: copy or export it again (${error}).`);
  }
})();
