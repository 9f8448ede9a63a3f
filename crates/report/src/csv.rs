//! Lines of CSV.

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
