-- Who holds a role is looked up whenever people are asked to approve; hardly anybody in it is no full member.

CREATE INDEX people_gone ON people (user_id) WHERE kind <> 'member';
