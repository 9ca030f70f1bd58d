-- The rendered documents: by what decides how each looks, the file that it became. The file is in the folder of artefacts.

CREATE TABLE artefacts (
  render_key TEXT NOT NULL CHECK (length(render_key) = 64), -- of document, template, fonts, logo: known before rendering
  sha256 TEXT NOT NULL CHECK (length(sha256) = 64), -- of the file
  quote_id TEXT NOT NULL,
  version INTEGER NOT NULL,
  pages INTEGER NOT NULL,
  rendered_at INTEGER NOT NULL,
  PRIMARY KEY (render_key, sha256)
) STRICT, WITHOUT ROWID;
