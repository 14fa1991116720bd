"""Detectors from other packages, as functions for `hf_ngsan.extraction.extract_features(..., detector=)`.

Each function takes a list of images and returns boxes in pixels, scores and labels for each image. This example writes
features of the regions that YOLOX-nano detects in the folder `photos`:

    session = onnxruntime.InferenceSession("yolox_nano.onnx")
    encoder = load_vision("efficientnet-lite2", kind="boxes")
    extract_features(*encoder, "photos", "regions", detector=partial(with_yolox, session))
"""

import numpy as np
from PIL import Image


def with_ultralytics(model, images):
    """Detects objects with Ultralytics; `model` is `ultralytics.YOLO("yolo11n.pt")`."""
    results = model(images)
    names = [[result.names[int(number)] for number in result.boxes.cls] for result in results]
    return [(result.boxes.xyxy, result.boxes.conf, words) for result, words in zip(results, names, strict=True)]


def with_detectron2(predictor, images):
    """Detects objects with Detectron2; `predictor` is `detectron2.engine.DefaultPredictor(config)`."""
    instances = [predictor(np.asarray(image)[:, :, ::-1])["instances"] for image in images]
    return [(detected.pred_boxes.tensor, detected.scores, detected.pred_classes) for detected in instances]


def with_yolox(session, images, side=416):
    """Detects objects with YOLOX-nano; `session` is `onnxruntime.InferenceSession("yolox_nano.onnx")`."""
    strides = [stride for stride in (8, 16, 32) for _ in range((side // stride) ** 2)]
    corners = [(x, y) for stride in (8, 16, 32) for y in range(side // stride) for x in range(side // stride)]
    triples = []
    for image in images:
        scale, page = side / max(image.size), Image.new("RGB", (side, side), (114, 114, 114))
        page.paste(image.resize([round(pixels * scale) for pixels in image.size]))
        pixels = np.asarray(page, np.float32)[None, :, :, ::-1].transpose(0, 3, 1, 2)  # BGR
        [raw] = session.run(None, {"images": pixels})[0]
        centers, sizes = raw[:, :2] + corners, np.exp(raw[:, 2:4])
        boxes = np.concatenate([centers - sizes / 2, centers + sizes / 2], 1) * np.array(strides)[:, None] / scale
        scores = raw[:, 4:5] * raw[:, 5:]
        labels, scores = scores.argmax(1), scores.max(1)
        kept = []
        for place in np.argsort(-scores)[: (scores >= 0.02).sum()]:  # non-maximum suppression within a class
            low, high = np.maximum(boxes[place, :2], boxes[kept, :2]), np.minimum(boxes[place, 2:], boxes[kept, 2:])
            shared = (high - low).clip(0).prod(1)
            areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
            overlap = shared / (areas[kept] + areas[place] - shared)
            if not (overlap[labels[kept] == labels[place]] > 0.6).any():
                kept.append(place)
        triples.append((boxes[kept], scores[kept], labels[kept]))
    return triples
