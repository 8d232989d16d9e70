//! Variants without their text.

use idempotent_runtime::KeyPart;

#[derive(KeyPart)]
enum Kind {
    Created,
    #[key_prat("order-cancelled")]
    OrderCancelled,
}

fn main() {}
