//! Doubles of libraries that test machines lack, compiled by the C compiler that has built the
//! bridge.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a shared library.
pub(super) fn library(folder: &Path, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let (out, code) = (folder.join(name), folder.join(format!("{name}.c")));
    std::fs::write(&code, source).unwrap();
    let mut command = Command::new("cc");
    command
        .args(["-shared", "-fPIC", "-o"])
        .arg(&out)
        .arg(&code);
    let made = command.args(flags).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    out
}

/// A driver with so many devices, and what its cuInit returns; its path.
pub(super) fn driver(folder: &Path, count: i32, init: i32) -> String {
    const SOURCE: &str = r#"
#include <stdio.h>
#include <string.h>
int cuInit(unsigned flags) { return flags == 0 ? INIT : 1; }
int cuGetErrorString(int code, const char **words) {
  static char text[32];
  sprintf(text, "words of %d", code);
  *words = text;
  return 0;
}
int cuDriverGetVersion(int *version) { *version = 12040; return 0; }
int cuDeviceGetCount(int *count) { *count = COUNT; return 0; }
int cuDeviceGet(int *device, int number) {
  *device = 100 + number;
  return number < COUNT ? 0 : 101;
}
static unsigned flags[COUNT + 1];
int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned set) {
  flags[device - 100] = set;
  return 0;
}
unsigned flags_of(int number) { return flags[number]; }
int cuDeviceGetName(char *name, int length, int device) {
  snprintf(name, length, "Double %d", device - 100);
  return 0;
}
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
  memset(uuid, 99, 16);
  uuid[0] = device - 100;
  return 0;
}
"#;
    // A library is loaded once under one path.
    let name = format!("libcuda-{count}-{init}.so");
    let defines = [format!("-DCOUNT={count}"), format!("-DINIT={init}")];
    let path = library(
        folder,
        &name,
        SOURCE,
        &defines.each_ref().map(String::as_str),
    );
    path.to_str().unwrap().to_owned()
}
