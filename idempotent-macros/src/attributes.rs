//! What the macro needs to know about the other attributes of the function.

use syn::punctuated::Punctuated;
use syn::{Attribute, Meta, Path, Token};

/// Attributes of the compiler that stand on functions and do not rewrite them.
const INERT: [&str; 21] = [
    "allow",
    "automatically_derived",
    "cfg",
    "cold",
    "deny",
    "deprecated",
    "doc",
    "expect",
    "export_name",
    "forbid",
    "ignore",
    "inline",
    "link_section",
    "must_use",
    "no_mangle",
    "should_panic",
    "target_feature",
    "test",
    "track_caller",
    "unsafe",
    "warn",
];

/// Namespaces of attributes that only tools read.
const TOOLS: [&str; 5] = ["clippy", "diagnostic", "miri", "rustc", "rustfmt"];

/// Does the attribute rewrite the function, for all that can be told?
pub(crate) fn may_be_macro(attribute: &Attribute) -> bool {
    if attribute.path().is_ident("cfg_attr") {
        let nested = attribute.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
        return nested.map_or(true, |metas| metas.iter().skip(1).any(|meta| !is_inert(meta.path())));
    }
    !is_inert(attribute.path())
}

fn is_inert(path: &Path) -> bool {
    let names = if path.segments.len() == 1 { &INERT[..] } else { &TOOLS[..] };
    path.segments.first().is_some_and(|segment| names.iter().any(|name| segment.ident == name))
}

#[cfg(test)]
mod tests {
    use syn::{Attribute, parse_quote};

    use super::may_be_macro;

    #[test]
    fn attributes_of_the_compiler_are_no_macros() {
        let inert: [Attribute; 5] = [
            parse_quote!(#[doc = "text"]),
            parse_quote!(#[must_use]),
            parse_quote!(#[clippy::cognitive_complexity = "30"]),
            parse_quote!(#[cfg_attr(test, allow(dead_code), inline)]),
            parse_quote!(#[unsafe(no_mangle)]),
        ];
        assert!(!inert.iter().any(may_be_macro));
    }

    #[test]
    fn others_may_be() {
        let macros: [Attribute; 4] = [
            parse_quote!(#[instrument]),
            parse_quote!(#[tracing::instrument(skip(tx))]),
            parse_quote!(#[cfg_attr(feature = "trace", tracing::instrument)]),
            parse_quote!(#[cfg_attr(not an attribute)]),
        ];
        assert!(macros.iter().all(may_be_macro));
    }
}
