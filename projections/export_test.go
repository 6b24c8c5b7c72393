package projections

// Decode is decode, for the tests, which are outside the package.
var Decode = decode

// MaxPreview is maxPreview.
const MaxPreview = maxPreview

// SetPreview is setPreview.
func (c *Chat) SetPreview(text string) { c.setPreview(text) }
