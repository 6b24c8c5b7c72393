package records

import (
	"net/http"

	"pocketcoder/handlers/record"
	"pocketcoder/web/api"
	"pocketcoder/web/query"
)

// collectionSchema is a collection as PocketBase describes one.
type collectionSchema struct {
	ID         string        `json:"id"`
	Name       string        `json:"name"`
	Type       string        `json:"type"`
	System     bool          `json:"system"`
	ListRule   *string       `json:"listRule"`
	ViewRule   *string       `json:"viewRule"`
	CreateRule *string       `json:"createRule"`
	UpdateRule *string       `json:"updateRule"`
	DeleteRule *string       `json:"deleteRule"`
	Fields     []fieldSchema `json:"fields"`
	Indexes    []string      `json:"indexes"`
}

type fieldSchema struct {
	ID           string   `json:"id"`
	Name         string   `json:"name"`
	Type         string   `json:"type"`
	Required     bool     `json:"required"`
	System       bool     `json:"system"`
	Hidden       bool     `json:"hidden"`
	MaxSelect    int      `json:"maxSelect,omitempty"`
	Values       []string `json:"values,omitempty"`
	CollectionID string   `json:"collectionId,omitempty"` // of a relation
	PrimaryKey   bool     `json:"primaryKey,omitempty"`
}

type collectionList struct {
	Page       int                `json:"page"`
	PerPage    int                `json:"perPage"`
	TotalItems int                `json:"totalItems"`
	TotalPages int                `json:"totalPages"`
	Items      []collectionSchema `json:"items"`
}

func (s *Records) listCollections(w http.ResponseWriter, _ *http.Request, _ api.Caller) error {
	all := s.API.Catalogue
	list := collectionList{Page: 1, PerPage: len(all), TotalItems: len(all), TotalPages: 1}
	for _, c := range all {
		list.Items = append(list.Items, schemaOf(c))
	}
	return api.WriteJSON(w, http.StatusOK, list)
}

func (s *Records) viewCollection(w http.ResponseWriter, r *http.Request, _ api.Caller) error {
	c, err := s.collectionOf(r)
	if err != nil {
		return err
	}
	return api.WriteJSON(w, http.StatusOK, schemaOf(c.Collection))
}

func schemaOf(c query.Collection) collectionSchema {
	described := collectionSchema{
		ID: c.ID, Name: c.Name, Type: c.Type, ListRule: c.List, ViewRule: c.View, CreateRule: c.Create, UpdateRule: c.Update, DeleteRule: c.Delete,
		Indexes: []string{}, Fields: []fieldSchema{{ID: c.ID + ".id", Name: "id", Type: string(record.Text), Required: true, System: true, PrimaryKey: true}},
	}
	for _, f := range c.Fields {
		shown := fieldSchema{ID: c.ID + "." + f.Name, Name: f.Name, Type: string(f.Kind), Required: f.Required,
			Values: f.Values, CollectionID: f.Relation}
		if f.Kind == record.Select || f.Kind == record.Relation {
			shown.MaxSelect = 1
		}
		described.Fields = append(described.Fields, shown)
	}
	for _, name := range []string{"created", "updated"} {
		described.Fields = append(described.Fields, fieldSchema{ID: c.ID + "." + name, Name: name,
			Type: string(record.Autodate)})
	}
	return described
}
