-- Leaves room in the pages of edges, so that settling one does not write its indexes again.
-- floor: 3
ALTER TABLE penstock.edge SET (fillfactor = 50);
