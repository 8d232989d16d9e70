//! What to know before production, a page each.
//!
//! | page | the question |
//! |---|---|
//! | [`retention`] | how long to keep claims, and what senders promise |
//! | [`sizing`] | how many rows and bytes that makes |
//! | [`dead_letters`] | how a parked message is replayed, step by step |
//! | [`external_effects`] | what to do about mails, payments and brokers |
//! | [`when_not_to_use_it`] | which handlers need none of this |
//! | [`the_same_operation`] | one operation that comes under several ids |
//! | [`tenants`] | customers whose ids may be the same |
//! | [`adoption`] | how a table that hand-written code has filled is taken over |
//! | [`observability`] | every metric, span, event and field, and the alerts |

#[doc = include_str!("../docs/retention.md")]
pub mod retention {}

#[doc = include_str!("../docs/sizing.md")]
pub mod sizing {}

#[doc = include_str!("../docs/dead_letters.md")]
pub mod dead_letters {}

#[doc = include_str!("../docs/external_effects.md")]
pub mod external_effects {}

#[doc = include_str!("../docs/when_not_to_use_it.md")]
pub mod when_not_to_use_it {}

#[doc = include_str!("../docs/the_same_operation.md")]
pub mod the_same_operation {}

#[doc = include_str!("../docs/tenants.md")]
pub mod tenants {}

#[doc = include_str!("../docs/observability.md")]
pub mod observability {}

#[doc = include_str!("../docs/adoption.md")]
pub mod adoption {}
