package events

// Blob refers to an object in BLOBS.
type Blob struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"` // bytes
	SHA256 string `json:"sha256"`
}
