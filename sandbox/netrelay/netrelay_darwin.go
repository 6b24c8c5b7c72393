package netrelay

import "errors"

// soDomain is not an option of macOS. There is no bubblewrap either, so no socket is passed.
const soDomain = -1

func seal() {}

func pair() ([2]int, error) { return [2]int{}, errors.New("bubblewrap needs Linux") }
