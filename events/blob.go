package events

import "encoding/json"

// Blob refers to an object in BLOBS.
type Blob struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"` // bytes
	SHA256 string `json:"sha256"`
}

// BlobsIn returns the names of the blobs that a body refers to, at any depth.
func BlobsIn(body []byte) (names []string) {
	var value any
	if json.Unmarshal(body, &value) == nil {
		names = blobsIn(value, nil)
	}
	return names
}

func blobsIn(value any, names []string) []string {
	switch v := value.(type) {
	case []any:
		for _, item := range v {
			names = blobsIn(item, names)
		}
	case map[string]any:
		name, isNamed := v["name"].(string)
		_, isSized := v["size"].(float64)
		_, isHashed := v["sha256"].(string)
		if isNamed && isSized && isHashed {
			names = append(names, name)
		}
		for _, item := range v {
			names = blobsIn(item, names)
		}
	}
	return names
}
