//! Which digit an image shows.

use std::path::PathBuf;

use crate::task;

task! {
    /// A small convolutional network on handwritten digits.
    "mnist" ("a small convolutional network that recognizes handwritten digits")
    measures "validation cross-entropy" is Mnist {
        /// Folder with the four files of MNIST in IDX format, or with others of the same form and names. The
        /// path is relative to the configuration file.
        folder: PathBuf = "data.folder", Path;
    }
}
