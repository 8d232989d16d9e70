//! Where generated code finds the library.

use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;
use syn::{Path, Token};

use crate::expand::identifier;
use crate::manifest::Dependency;

/// The two paths that all generated code starts with.
pub(crate) struct Runtime {
    /// The library's crate.
    pub(crate) path: Path,
    /// Its module for generated code.
    pub(crate) private: TokenStream,
    /// Did the user say where it is?
    given: bool,
}

impl Runtime {
    /// `path` as the user gave it, or the name of the dependency.
    pub(crate) fn new(path: Option<&Path>, dependency: &Dependency) -> Self {
        Self::from_path(path.map_or_else(|| default_path(dependency), generated), path.is_some())
    }

    /// The same paths, but the compiler shows what it has to say about them at `place`. A path that the user gave may
    /// be wrong itself, and stays where it is.
    pub(crate) fn located_at(&self, place: Span) -> Self {
        let mut path = self.path.clone();
        if self.given {
            return Self::from_path(path, true);
        }
        for segment in &mut path.segments {
            segment.ident.set_span(segment.ident.span().located_at(place));
        }
        if let Some(colons) = &mut path.leading_colon {
            colons.spans = colons.spans.map(|span| span.located_at(place));
        }
        Self::from_path(path, false)
    }

    fn from_path(path: Path, given: bool) -> Self {
        let span = path.segments.first().map_or_else(Span::mixed_site, |segment| segment.ident.span());
        let span = Span::mixed_site().located_at(span);
        let private = quote_spanned!(span=> #path::__private);
        Self { path, private, given }
    }
}

/// What to say where there is no dependency. `example` gives the path.
pub(crate) fn absent(example: &str) -> String {
    format!(
        "`idempotent-runtime` is no dependency of this package: add it, or write where it is re-exported, as in `{example}`"
    )
}

fn default_path(dependency: &Dependency) -> Path {
    let name = match dependency {
        Dependency::Renamed(name) => name,
        Dependency::ByName | Dependency::Absent => "idempotent_runtime",
    };
    let mut path = Path::from(identifier(name, Span::mixed_site()));
    // A module of this name in the user's crate is not meant.
    path.leading_colon = Some(<Token![::]>::default());
    path
}

/// The user's path as a part of generated code, so that no lint takes that code for the user's. `$crate` alone must
/// keep its token, since that is what knows the crate.
fn generated(path: &Path) -> Path {
    let mut path = path.clone();
    for segment in path.segments.iter_mut().filter(|segment| segment.ident != "$crate") {
        segment.ident.set_span(Span::mixed_site().located_at(segment.ident.span()));
    }
    path
}
