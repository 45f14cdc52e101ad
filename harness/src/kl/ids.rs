//! Token ids from a file.

use std::{fs, path::Path};

use super::error::KlError;

/// Documents of token ids from a JSON file: `[1, 2, 3]`, or `[[1, 2], [3, 4]]` for several.
///
/// # Errors
/// [`KlError::Text`].
pub fn read(path: &Path) -> Result<Vec<Vec<u32>>, KlError> {
    let wrong = |message: String| KlError::Text { path: path.into(), message };
    let text = fs::read_to_string(path).map_err(|error| wrong(format!("cannot read: {error}")))?;
    if text.trim().is_empty() {
        return Err(wrong("it is empty".to_owned()));
    }
    let documents = match serde_json::from_str::<Vec<Vec<u32>>>(&text) {
        Ok(documents) => Ok(documents),
        Err(_) => serde_json::from_str(&text).map(|ids| vec![ids]),
    };
    let wanted = "wanted a JSON list of token ids, or a list of such lists";
    documents.map_err(|error| wrong(format!("{error}; {wanted}")))
}

/// The first `most` tokens of all documents.
pub fn truncate(documents: &mut Vec<Vec<u32>>, most: usize) {
    let mut left = most;
    for document in documents.iter_mut() {
        document.truncate(left);
        left -= document.len();
    }
    documents.retain(|document| !document.is_empty());
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn read_text(text: &str) -> Result<Vec<Vec<u32>>, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        read(file.path()).map_err(|error| error.to_string())
    }

    #[test]
    fn one_document_or_several() {
        assert_eq!(read_text("[1, 2]"), Ok(vec![vec![1, 2]]));
        assert_eq!(read_text("[[1], [2, 3]]"), Ok(vec![vec![1], vec![2, 3]]));
    }

    #[rstest]
    #[case::nothing(" \n", "empty")]
    #[case::negative("[1, -2]", "wanted a JSON list of token ids")]
    #[case::text("hello", "expected value")]
    #[case::cut_short("[1, 2", "EOF")]
    fn what_is_no_list_of_ids_is_refused(#[case] text: &str, #[case] wanted: &str) {
        let error = read_text(text).unwrap_err();
        assert!(error.contains(wanted), "{error}");
    }

    #[test]
    fn the_first_tokens_of_all_documents_stay() {
        let mut documents = vec![vec![1, 2], vec![3, 4], vec![5]];
        truncate(&mut documents, 3);
        assert_eq!(documents, [vec![1, 2], vec![3]]);
    }
}
