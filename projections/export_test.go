package projections

// What the tests, which are outside the package, check of its inside.
var Decode = decode

const (
	MaxPreview  = maxPreview
	SelectShown = selectShown
)

// SetPreview is setPreview.
func (c *Chat) SetPreview(text string) { c.setPreview(text) }
