package handlers

import "bytes"

// RefuseWeak refuses a secret that a person chose, if secret.Check returned an error for it.
func RefuseWeak(field string, weak error) error {
	if weak == nil {
		return nil
	}
	return RefuseField(Invalid, field, "The %s %v. A secret is replaced in everything that is stored, so PocketCoder "+
		"accepts only a random text of at least 16 bytes, such as an app password or a token.", field, weak)
}

// RefuseFull refuses a further secret of a source, as secret.Source names it, whose budget is used up.
func RefuseFull[S ~string](source S, budget int) error {
	return Refuse(Conflict, "No further %s can be stored, because at most %d can be redacted. Delete others first.", source,
		budget)
}

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
