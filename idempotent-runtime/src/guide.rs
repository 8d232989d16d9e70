//! What to know before production, a page each.
//!
//! For each deployment: [`retention`], [`sizing`], [`observability`], and [`dead_letters`] as a procedure. While handlers are
//! written: [`external_effects`], [`the_same_operation`], [`tenants`], [`when_not_to_use_it`]. Where hand-written code goes
//! before: [`adoption`].

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
