# Untried: compiled and checked for style only, never installed by Spack (packaging/README.md).
# In a checkout: spack repo add packaging/spack; spack dev-build millrace@main
from spack.package import *


class Millrace(CMakePackage):
    """Keeps a GPU fed with training data, and shows where time goes when it starves."""

    license("Apache-2.0")

    git = "REPOSITORY"  # the address that you cloned

    version("main", branch="main")

    variant("jpeg", default=True, description="JPEG pictures")
    variant("png", default=True, description="PNG pictures, contact sheets, timelines")
    variant("webp", default=True, description="WebP pictures")
    variant("zstd", default=True, description=".tar.zst archives")
    variant("zip", default=True, description=".npz archives")
    variant("uring", default=True, description="Reads by io_uring")
    variant("http", default=True, description="Data at http:, https: and s3: URLs")
    variant("video", default=False, description="Video files, by FFmpeg")
    variant("cuda", default=False, description="Kernels for NVIDIA GPUs, by nvcc")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("python@3:", type="build")
    depends_on("cjson")
    depends_on("sqlite@3.31:")
    depends_on("xxhash")
    depends_on("zlib-api")
    depends_on("libjpeg-turbo@2:", when="+jpeg")
    depends_on("libspng", when="+png")
    depends_on("libwebp", when="+webp")
    depends_on("zstd", when="+zstd")
    depends_on("libzip@1.5:", when="+zip")
    depends_on("liburing", when="+uring")
    depends_on("curl@7.75:", when="+http")
    depends_on("expat", when="+http")
    depends_on("ffmpeg", when="+video")
    depends_on("cuda", type="build", when="+cuda")

    generator("ninja")

    def cmake_args(self):
        variants = ("jpeg", "png", "webp", "zstd", "zip", "uring", "http", "video")
        args = [self.define("MILLRACE_TESTS", False)]
        args += [self.define_from_variant(f"MILLRACE_{name.upper()}", name) for name in variants]
        args.append(self.define_from_variant("MILLRACE_CUDA_KERNELS", "cuda"))
        return args
