package handlers

import "bytes"

// redactor replaces secrets, as what is stored has them: secret.Redactor.
type redactor interface{ JSON([]byte) []byte }

// RefuseSecret refuses a value, as JSON, that the log would store with [redacted] in place of a part. What is stored
// must be what was sent, because a rule or a name with a concealed part would mean something else.
func RefuseSecret(r redactor, field string, value []byte) error {
	if bytes.Equal(r.JSON(value), value) {
		return nil
	}
	return RefuseField(Invalid, field,
		"%s contains a secret of this installation, such as a key. Secrets are not stored in records. Leave it out.", field)
}
