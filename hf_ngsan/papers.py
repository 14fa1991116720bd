"""The papers that describe the models of this package."""

from dataclasses import dataclass

PROCEEDINGS = {
    "CVPR": "IEEE/CVF Conference on Computer Vision and Pattern Recognition (CVPR)",
    "ESANN": "European Symposium on Artificial Neural Networks (ESANN)",
    "WACV": "IEEE/CVF Winter Conference on Applications of Computer Vision (WACV)",
}


@dataclass(frozen=True)
class Paper:
    """The paper of an architecture; model cards show authors and venue, such as "Guo et al." and "CVPR 2020"."""

    title: str
    authors: str
    venue: str
    citation: str = ""

    def __str__(self) -> str:
        return f"*{self.title}* ({self.authors}, {self.venue})"


def cited(key: str, title: str, authors: str, published: str) -> Paper:
    """Returns a paper with its BibTeX entry; `authors` is a BibTeX list, and `published` has the form "CVPR 2020"."""
    venue, year = published.split()
    fields = {"title": f"{{{title}}}", "author": authors, "booktitle": PROCEEDINGS[venue], "year": year}
    lines = ",\n".join(f"  {name} = {{{value}}}" for name, value in fields.items())
    first_author = authors.partition(",")[0]
    return Paper(title, f"{first_author} et al.", published, f"@inproceedings{{{key},\n{lines}\n}}")


NGSAN = cited(
    "guo2020normalized",
    "Normalized and Geometry-Aware Self-Attention Network for Image Captioning",
    "Guo, Longteng and Liu, Jing and Zhu, Xinxin and Yao, Peng and Lu, Shichen and Lu, Hanqing",
    "CVPR 2020",
)
RSTNET = cited(
    "zhang2021rstnet",
    "RSTNet: Captioning with Adaptive Attention on Visual and Non-Visual Words",
    "Zhang, Xuying and Sun, Xiaoshuai and Luo, Yunpeng and Ji, Jiayi and Zhou, Yiyi and Wu, Yongjian and Huang, "
    "Feiyue and Ji, Rongrong",
    "CVPR 2021",
)
SPATIAL = cited(
    "springenberg2018image",
    "Image-to-Text Transduction with Spatial Self-Attention",
    "Springenberg, Sebastian and Lakomkin, Egor and Weber, Cornelius and Wermter, Stefan",
    "ESANN 2018",
)
MHSAN = cited(
    "park2020mhsan",
    "MHSAN: Multi-Head Self-Attention Network for Visual Semantic Embedding",
    "Park, Geondo and Han, Chihye and Yoon, Wonjun and Kim, Daeshik",
    "WACV 2020",
)
MCAN = cited(
    "yu2019deep",
    "Deep Modular Co-Attention Networks for Visual Question Answering",
    "Yu, Zhou and Yu, Jun and Cui, Yuhao and Tao, Dacheng and Tian, Qi",
    "CVPR 2019",
)
