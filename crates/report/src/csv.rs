//! Lines of CSV.

use perfrun_contract::units::Unit;
use serde::Serialize;

/// A line, whose fields are its columns.
macro_rules! columns {
    (struct $name:ident<$life:lifetime> { $($column:ident: $type:ty,)+ }) => {
        #[derive(serde::Serialize)]
        struct $name<$life> {
            $($column: $type,)+
        }

        impl $name<'_> {
            const COLUMNS: &'static [&'static str] = &[$(stringify!($column)),+];
        }
    };
}

pub(crate) use columns;

/// Lines of CSV, under a header if there is one. Without lines, the text is the header.
pub(crate) fn text(header: Option<&[&str]>, lines: impl IntoIterator<Item = impl Serialize>) -> String {
    let mut writer = ::csv::WriterBuilder::new().has_headers(false).from_writer(vec![]);
    if let Some(columns) = header {
        writer
            .write_record(columns)
            .expect("memory takes whatever is written");
    }
    for line in lines {
        writer
            .serialize(line)
            .expect("every line has the columns of the header");
    }
    let bytes = writer.into_inner().expect("memory takes whatever is written");
    String::from_utf8(bytes).expect("only text was written")
}

/// A unit in a field of its own, which would be empty for a number. An empty field stands for what is not
/// known.
pub(crate) fn unit(unit: Unit) -> String {
    match unit {
        Unit::Count => unit.as_ref().to_owned(),
        unit => unit.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use perfrun_contract::metric::Metric;

    use super::*;

    #[test]
    fn each_metric_has_a_unit_in_its_field() {
        for metric in Metric::judged() {
            assert_ne!(unit(metric.unit()), "", "{metric}");
        }
        assert_eq!(unit(Unit::Count), "count");
        assert_eq!(unit(Unit::BitsPerSecond), "bit/s");
    }
}
