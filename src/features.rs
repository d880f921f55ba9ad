//! The cargo features of this build.

/// The features of `Cargo.toml`, and whether this build has each of them.
pub const FEATURES: &[(&str, bool)] = &[
    ("allocator", cfg!(feature = "allocator")),
    ("compare", cfg!(feature = "compare")),
    ("console", cfg!(feature = "console")),
    ("file", cfg!(feature = "file")),
    ("kafka", cfg!(feature = "kafka")),
    ("otlp", cfg!(feature = "otlp")),
    ("portable", cfg!(feature = "portable")),
    ("rabbitmq", cfg!(feature = "rabbitmq")),
];

/// The names of the features that this build has, separated by commas.
pub(crate) fn compiled_in() -> String {
    let features = FEATURES.iter().filter(|(_, is_on)| *is_on).map(|(name, _)| *name);
    features.collect::<Vec<_>>().join(", ")
}

/// Returns what is wrong and how to mend it, for a user who asks for a feature that this build lacks.
pub(crate) fn missing(feature: &str) -> (String, String) {
    let what = format!(
        "this binary was built without the feature {feature}; it has the features {}",
        compiled_in()
    );
    (what, format!("build it with: cargo build --features {feature}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_feature_is_named_with_those_of_the_build() {
        let (what, mend) = missing("carrier-pigeon");
        let has = "this binary was built without the feature carrier-pigeon; it has the features ";
        assert_eq!(what.strip_prefix(has), Some(&*compiled_in()));
        assert_eq!(mend, "build it with: cargo build --features carrier-pigeon");
        for (name, is_on) in FEATURES {
            assert_eq!(compiled_in().split(", ").any(|it| it == *name), *is_on, "{name}");
        }
    }
}
