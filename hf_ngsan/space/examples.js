// Uploads an example that was clicked on, as if the user had chosen it.
element.addEventListener('click', async event => {
  const picture = event.target.closest('button')?.querySelector('img');
  if (!picture) return;
  const content = await (await fetch(picture.src)).blob();
  const {path, url} = await upload(new File([content], `${picture.alt}.jpg`, {type: content.type}));
  element.dataset.upload = JSON.stringify({path, url, orig_name: picture.alt, meta: {_type: 'gradio.FileData'}});
  trigger('click');
});
