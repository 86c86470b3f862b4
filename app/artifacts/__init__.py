"""Files that turns produced, kept outside of every sandbox."""

from app.artifacts.store import ArtifactLimits, ArtifactStore

__all__ = ["ArtifactLimits", "ArtifactStore"]
