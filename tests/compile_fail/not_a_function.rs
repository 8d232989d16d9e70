//! The attribute stands on a struct.

use idempotent_runtime::idempotent;

#[idempotent(key = "{event.id}")]
struct Handler;

fn main() {}
