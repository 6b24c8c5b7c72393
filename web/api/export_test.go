package api

import "pocketcoder/web/api/records"

// Catalogue is all collections, for tests that go through them.
func Catalogue() records.Catalogue { return catalogue }
