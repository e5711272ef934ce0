//! Why the rules could not be checked at all.

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read {path}: {error}")]
    Read {
        path: String,
        #[source]
        error: std::io::Error,
    },
    #[error("cannot run cargo metadata: {0}")]
    RunCargo(#[source] std::io::Error),
    #[error("cargo metadata failed for {manifest}: {message}")]
    Metadata { manifest: String, message: String },
    #[error("cargo metadata answered something unknown: {0}")]
    Json(#[from] serde_json::Error),
}
